/* What an artifact on a vendor's board defines, and what the harness does for it. */
#ifndef APP_H
#define APP_H

#include <stdint.h>

void net(const void *input, void *output); /* one inference: INPUT_BYTES in, OUTPUT_BYTES out */

/* Both may be left out. */
void app_begin(void); /* once, after the boot delay: clocks, power, peripherals */
void app_idle(void);  /* again and again while the harness waits for a byte; it may sleep, and must come back */

void arena_console(void); /* to be called after a change of clocks: sets the serial port's baud rate again */

#endif
