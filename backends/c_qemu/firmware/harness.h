/* What the harness (main.c) asks of its neighbours: a serial port and a start-up. */
#ifndef HARNESS_H
#define HARNESS_H

#include <stdint.h>

void uart_init(void);
void uart_put(uint8_t byte);
uint8_t uart_get(void); /* waits */

/* Clock gates and pins, as the target's file lists them: -DUART_SETUP={address,value},... Emulated boards need none.
 * Each write is read back: a peripheral hears nothing until its clock has run for two cycles.
 * -DUART_WAITS: an odd address stands for the one below it, which is read until it shows all bits of the value.
 */
static inline void uart_setup(void) {
#ifdef UART_SETUP
    static const struct {
        uint32_t address, value;
    } writes[] = {UART_SETUP};
    for (uint32_t step = 0; step < sizeof writes / sizeof *writes; step++) {
#ifdef UART_WAITS
        if (writes[step].address & 1u) {
            const volatile uint32_t *const at = (const volatile uint32_t *)(writes[step].address - 1u);
            while (~*at & writes[step].value) {
            }
            continue;
        }
#endif
        volatile uint32_t *const to = (volatile uint32_t *)writes[step].address;
        *to = writes[step].value;
        (void)*to;
    }
#endif
}

uint64_t ticks(void); /* of SysTick, since the inference began */

void fault(void);         /* any exception that nobody expected */
void systick_wrap(void);  /* SysTick's interrupt */
int main(void);

#endif
