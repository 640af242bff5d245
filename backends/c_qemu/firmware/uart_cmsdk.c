/* UART of Arm's Cortex-M System Design Kit, at UART_BASE; Arm DDI 0479, section 4.3. QEMU's MPS2 and MPS3 have it. */
#include "harness.h"

#define DATA (*(volatile uint32_t *)(UART_BASE + 0x00u))
#define STATE (*(volatile uint32_t *)(UART_BASE + 0x04u))
#define CONTROL (*(volatile uint32_t *)(UART_BASE + 0x08u))
#define DIVIDER (*(volatile uint32_t *)(UART_BASE + 0x10u))
#define TRANSMIT_FULL 1u
#define RECEIVED 2u
#define ENABLE_BOTH_WAYS 3u
#define SMALLEST_DIVIDER 16u

void uart_init(void) {
    DIVIDER = SMALLEST_DIVIDER;
    CONTROL = ENABLE_BOTH_WAYS;
}

void uart_put(uint8_t byte) {
    while (STATE & TRANSMIT_FULL) {
    }
    DATA = byte;
}

uint8_t uart_get(void) {
    while (!(STATE & RECEIVED)) {
    }
    return (uint8_t)DATA;
}
