// SPDX-License-Identifier: Apache-2.0
/*
 * Chooses the table of kernels for this CPU, or the one that is asked for, and
 * puts a thread's floating-point unit into the state they rely on. Never
 * replaces what was asked for by something else.
 */
#include <assert.h>
#include <fenv.h>
#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "kernels/cpu/cpu.h"

#define CPU_KNOWN 0x80000000u /* beside the bits of kernels/cpu/cpu.h */

struct isa {
    const char *name;
    unsigned needs;                /* CPU_ bits */
    const struct kernels *kernels; /* NULL: not in this build */
};

#if defined(__x86_64__)
#define X86(table) (&(table))
#define ARM(table) NULL
#define NAMES      "scalar, avx2 or avx512"
#elif defined(__aarch64__)
#define X86(table) NULL
#define ARM(table) (&(table))
#define NAMES      "scalar or neon"
#else
#define X86(table) NULL
#define ARM(table) NULL
#define NAMES      "scalar"
#endif

/* Best first. */
static const struct isa isas[] = {
    {"avx512", CPU_AVX512, X86(kernels_avx512)},
    {"avx2", CPU_AVX2, X86(kernels_avx2)},
    {"neon", CPU_NEON, ARM(kernels_neon)},
    {"scalar", 0, &kernels_scalar},
};
#define ISAS ((int)(sizeof(isas) / sizeof(isas[0])))

const struct kernels *kernels_choose(const char *isa, unsigned cpu, struct error *error)
{
    const struct kernels *best = NULL;
    bool known = false;
    for (int i = 0; i < ISAS; i++) {
        bool named = isa && strcmp(isa, isas[i].name) == 0;
        known = known || named;
        if (!isas[i].kernels || (isas[i].needs & ~cpu))
            continue;
        if (!isa || named)
            return isas[i].kernels;
        best = best ? best : isas[i].kernels;
    }
    assert(best); /* scalar needs nothing */
    if (!known)
        error_set(
            error, ZERO_ERR_ARGUMENT,
            "There is no instruction set \"%.64s\". Set ZERO_ISA to %s, or unset it to get the "
            "best one.",
            isa, NAMES);
    else
        error_set(error, ZERO_ERR_UNSUPPORTED,
                  "The kernels for %s do not run on this CPU, whose best are %s. Unset "
                  "ZERO_ISA or set it to %s: the results are the same bits.",
                  isa, best->isa, best->isa);
    return NULL;
}

#ifdef __x86_64__
/* Asked of the CPU, because not every compiler's __builtin_cpu_supports knows f16c. */
static bool cpu_has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

/* AMD's: 25 is Zen 3 and Zen 4, 26 Zen 5. */
static unsigned cpu_family(void)
{
    unsigned a = 0, b, c, d;
    __get_cpuid(1, &a, &b, &c, &d);
    return (a >> 8 & 15) + (a >> 20 & 255);
}
#endif

/* What is reported includes that the operating system saves the registers. */
static unsigned cpu_ask(void)
{
    unsigned cpu = 0;
#ifdef __x86_64__
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && cpu_has_f16c())
        cpu |= CPU_AVX2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        cpu |= CPU_AVX512;
    if (__builtin_cpu_is("intel"))
        cpu |= CPU_INTEL;
    if (__builtin_cpu_is("amd") && cpu_family() >= 26)
        cpu |= CPU_ZEN5;
#endif
#ifdef __aarch64__
    cpu |= CPU_NEON; /* a part of the architecture */
#endif
    return cpu;
}

/* Asked once, as a virtual machine takes a microsecond and more to answer. */
unsigned cpu_features(void)
{
    static unsigned known; /* and that it is */
    unsigned cpu = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (!(cpu & CPU_KNOWN)) {
        cpu = cpu_ask() | CPU_KNOWN;
        __atomic_store_n(&known, cpu, __ATOMIC_RELAXED);
    }
    return cpu;
}

const struct kernels *kernels_select(const char *isa, struct error *error)
{
    const char *environment = getenv("ZERO_ISA");
    if (!isa && environment && environment[0])
        isa = environment;
    return kernels_choose(isa, cpu_features(), error);
}

const struct kernels *kernels_best(void)
{
    return kernels_choose(NULL, cpu_features(), NULL); /* there always is one */
}

void kernels_thread_init(void)
{
    fesetenv(FE_DFL_ENV); /* to nearest, and no traps, which the program may have asked for */
    /* A library linked with -ffast-math may have switched denormals off. */
#if defined(__x86_64__)
    const unsigned ftz = 0x8000, daz = 0x0040;
    _mm_setcsr(_mm_getcsr() & ~(ftz | daz));
#elif defined(__aarch64__)
    /* Denormals flushed; one pattern for all NaN; fp16 without infinity. */
    const uint64_t fz = (uint64_t)1 << 24, dn = (uint64_t)1 << 25, ahp = (uint64_t)1 << 26;
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    __asm__ volatile("msr fpcr, %0" : : "r"(fpcr & ~(fz | dn | ahp)));
#endif
}

bool kernels_thread_rounds_to_nearest(void)
{
#if defined(__x86_64__) /* fegetround asks the x87 unit alone */
    if (_MM_GET_ROUNDING_MODE() != _MM_ROUND_NEAREST)
        return false;
#endif
    return fegetround() == FE_TONEAREST;
}
