/* USART of the STM32F0/F3/F7/G0/G4/H7/L4 (CR1, BRR, ISR, RDR, TDR), at UART_BASE; ST RM0468, chapter USART.
 *
 * -D: UART_CLOCK_HZ, of which UART_BAUD is made. QEMU 7.2 has no such port: this was never run.
 */
#include "harness.h"

#define CONTROL_1 (*(volatile uint32_t *)(UART_BASE + 0x00u))
#define BAUD_RATE (*(volatile uint32_t *)(UART_BASE + 0x0Cu))
#define STATUS (*(volatile uint32_t *)(UART_BASE + 0x1Cu))
#define RECEIVE_DATA (*(volatile uint32_t *)(UART_BASE + 0x24u))
#define TRANSMIT_DATA (*(volatile uint32_t *)(UART_BASE + 0x28u))
#define RECEIVED (1u << 5)
#define TRANSMIT_EMPTY (1u << 7)
#define ENABLE_BOTH_WAYS ((1u << 3) | (1u << 2) | (1u << 0))

void uart_init(void) {
    uart_setup();
#ifdef UART_CLOCK_HZ
    BAUD_RATE = (UART_CLOCK_HZ + UART_BAUD / 2) / UART_BAUD;
#endif
    CONTROL_1 = ENABLE_BOTH_WAYS;
}

void uart_put(uint8_t byte) {
    while (!(STATUS & TRANSMIT_EMPTY)) {
    }
    TRANSMIT_DATA = byte;
}

uint8_t uart_get(void) {
    while (!(STATUS & RECEIVED)) {
    }
    return (uint8_t)RECEIVE_DATA;
}
