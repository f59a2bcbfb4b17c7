/* far: a device whose memory the host cannot touch, made of the CPU.
 *
 * Its memory is closed to everyone but its own ops, so whoever reads or writes a device address on
 * the host dies there. The numbers are the CPU's to the bit: what runs on it with the same results
 * runs on any device. */
#ifndef TESTS_SUPPORT_FAR_H
#define TESTS_SUPPORT_FAR_H

#include "backend/backend.h"

device *far_open(void); /* aborts the test when it cannot */

#endif
