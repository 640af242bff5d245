/* What the USARTs of all STM32 have in common; the file that includes this one says where their registers are.
 *
 * -D: UART_CLOCK_HZ, of which UART_BAUD is made; without it the divider is left alone, as QEMU may.
 */
#define RECEIVED (1u << 5)
#define TRANSMIT_EMPTY (1u << 7)

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
