/* xml: whether a text is well-formed XML, as far as pictures go: every tag closed in order, every
 * attribute quoted, no bare & or <. */
#ifndef TESTS_SUPPORT_XML_H
#define TESTS_SUPPORT_XML_H

#include <stdbool.h>
#include <stddef.h>

bool xml_well_formed(const char *text, size_t n);

#endif
