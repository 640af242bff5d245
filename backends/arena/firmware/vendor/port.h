/* What a vendor's port adds to the harness beside serial port and clock. */
#ifndef PORT_H
#define PORT_H

#include <stdint.h>

void port_begin(void);                                     /* radio, sensors: after the boot delay, before app_begin */
void port_deliver(const uint8_t *output, uint32_t length); /* an answer to those who wait for it beside the host */

#endif
