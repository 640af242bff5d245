/* USART of the STM32F1/F2/F4 (SR, DR, BRR, CR1), at UART_BASE; ST RM0090, section 30.6.
 *
 * -D: UART_CLOCK_HZ, of which UART_BAUD is made; without it the divider is left alone, as QEMU may.
 */
#include "harness.h"

#define STATUS (*(volatile uint32_t *)(UART_BASE + 0x00u))
#define DATA (*(volatile uint32_t *)(UART_BASE + 0x04u))
#define BAUD_RATE (*(volatile uint32_t *)(UART_BASE + 0x08u))
#define CONTROL_1 (*(volatile uint32_t *)(UART_BASE + 0x0Cu))
#define RECEIVED (1u << 5)
#define TRANSMIT_EMPTY (1u << 7)
#define ENABLE_BOTH_WAYS ((1u << 13) | (1u << 3) | (1u << 2))

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
    DATA = byte;
}

uint8_t uart_get(void) {
    while (!(STATUS & RECEIVED)) {
    }
    return (uint8_t)DATA;
}
