/* What the harness (main.c) asks of its neighbours: a serial port and a start-up. */
#ifndef HARNESS_H
#define HARNESS_H

#include <stdint.h>

void uart_init(void);
void uart_put(uint8_t byte);
uint8_t uart_get(void); /* waits */

uint64_t ticks(void); /* of SysTick, since the inference began */

void fault(void);         /* any exception that nobody expected */
void systick_wrap(void);  /* SysTick's interrupt */
int main(void);

#endif
