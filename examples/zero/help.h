// SPDX-License-Identifier: Apache-2.0
/* The pages of `zero help`. Text alone; what they say is held to zero.h, the
 * README and the programs' own --help, which have the details. */
#ifndef EXAMPLES_ZERO_HELP_H
#define EXAMPLES_ZERO_HELP_H

struct help_page {
    const char *topic, *summary, *text;
};

enum { HELP_PAGES = 8 };
extern const struct help_page help_pages[HELP_PAGES];

#endif
