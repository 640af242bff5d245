/* UART of the nRF51, at UART_BASE; nRF51 Series Reference Manual 3.0, section 29 (UART). The nRF52 has it, too.
 *
 * Pins and baud rate are part of UART_SETUP. The harness counts by SysTick, which QEMU's nRF51 has and the real one
 * has not: there it answers 0 ticks.
 */
#include "harness.h"

#define REGISTER(offset) (*(volatile uint32_t *)(UART_BASE + (offset)))
#define START_RECEIVER REGISTER(0x000u)
#define START_TRANSMITTER REGISTER(0x008u)
#define RECEIVED REGISTER(0x108u)
#define SENT REGISTER(0x11Cu)
#define ENABLE REGISTER(0x500u)
#define RECEIVE_DATA REGISTER(0x518u)
#define TRANSMIT_DATA REGISTER(0x51Cu)

void uart_init(void) {
    uart_setup();
    ENABLE = 4;
    START_RECEIVER = 1;
    START_TRANSMITTER = 1;
}

void uart_put(uint8_t byte) {
    SENT = 0;
    TRANSMIT_DATA = byte;
    while (!SENT) {
    }
}

uint8_t uart_get(void) {
    while (!RECEIVED) {
    }
    RECEIVED = 0;
    return (uint8_t)RECEIVE_DATA;
}
