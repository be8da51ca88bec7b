// SPDX-License-Identifier: Apache-2.0
/* What tests ask of a struct error: that there is none, that its sentence says something. */
#ifndef TESTS_SUPPORT_MUST_H
#define TESTS_SUPPORT_MUST_H

#include <check.h>
#include <string.h>

#include "src/error.h"

static inline void must(int status, const struct error *error)
{
    ck_assert_msg(status == ZERO_OK, "%s", error->text);
}

static inline void has(const char *text, const char *part)
{
    ck_assert_msg(strstr(text, part) != NULL, "'%s' lacks '%s'", text, part);
}

#endif
