/* far: a device whose memory the host cannot touch, made of the CPU.
 *
 * Its memory is closed to everyone but its own ops, so whoever reads or writes a device address on
 * the host dies there. The numbers are the CPU's to the bit: what runs on it with the same results
 * runs on any device. */
#ifndef TESTS_SUPPORT_FAR_H
#define TESTS_SUPPORT_FAR_H

#include "backend/backend.h"

/* With so many bytes of its own; 0: enough. Aborts the test when it cannot. */
device *far_open(size_t memory);

enum { FAR_SCRATCH = 64 }; /* bytes of scratch that its ops claim to need for each token */

size_t far_host_bytes(device *d); /* that were asked of the host so far */

#endif
