/* USART of the STM32F0/F3/F7/G0/G4/H7/L4 (CR1, BRR, ISR, RDR, TDR), at UART_BASE; ST RM0468, chapter USART.
 *
 * QEMU 7.2 has no such port: this was never run.
 */
#include "harness.h"

#define CONTROL_1 (*(volatile uint32_t *)(UART_BASE + 0x00u))
#define BAUD_RATE (*(volatile uint32_t *)(UART_BASE + 0x0Cu))
#define STATUS (*(volatile uint32_t *)(UART_BASE + 0x1Cu))
#define RECEIVE_DATA (*(volatile uint32_t *)(UART_BASE + 0x24u))
#define TRANSMIT_DATA (*(volatile uint32_t *)(UART_BASE + 0x28u))
#define ENABLE_BOTH_WAYS ((1u << 3) | (1u << 2) | (1u << 0))

#include "uart_stm32.h"
