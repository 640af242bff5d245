/* Arm PrimeCell UART PL011, at UART_BASE; PL011 Technical Reference Manual, DDI 0183, chapter 3. The RP2040 has it.
 *
 * -D: UART_CLOCK_HZ, of which UART_BAUD is made; without it the divider is left alone, as QEMU may.
 */
#include "harness.h"

#define REGISTER(offset) (*(volatile uint32_t *)(UART_BASE + (offset)))
#define DATA REGISTER(0x00u)
#define FLAGS REGISTER(0x18u)
#define BAUD_WHOLE REGISTER(0x24u)
#define BAUD_64THS REGISTER(0x28u)
#define LINE_CONTROL REGISTER(0x2Cu)
#define CONTROL REGISTER(0x30u)
#define RECEIVE_EMPTY (1u << 4)
#define TRANSMIT_FULL (1u << 5)
#define EIGHT_BITS_AND_FIFO 0x70u
#define ENABLE_BOTH_WAYS 0x301u

void uart_init(void) {
    uart_setup();
#ifdef UART_CLOCK_HZ
    const uint32_t divider = (4u * UART_CLOCK_HZ + UART_BAUD / 2) / UART_BAUD; /* clock / (16 baud), in 64ths */
    BAUD_WHOLE = divider >> 6;
    BAUD_64THS = divider & 63u;
#endif
    LINE_CONTROL = EIGHT_BITS_AND_FIFO; /* after the divider, which it latches */
    CONTROL = ENABLE_BOTH_WAYS;
}

void uart_put(uint8_t byte) {
    while (FLAGS & TRANSMIT_FULL) {
    }
    DATA = byte;
}

uint8_t uart_get(void) {
    while (FLAGS & RECEIVE_EMPTY) {
    }
    return (uint8_t)DATA;
}
