/* USART of the STM32F1/F2/F4 (SR, DR, BRR, CR1), at UART_BASE; ST RM0090, section 30.6. */
#include "harness.h"

#define STATUS (*(volatile uint32_t *)(UART_BASE + 0x00u))
#define RECEIVE_DATA (*(volatile uint32_t *)(UART_BASE + 0x04u))
#define TRANSMIT_DATA RECEIVE_DATA
#define BAUD_RATE (*(volatile uint32_t *)(UART_BASE + 0x08u))
#define CONTROL_1 (*(volatile uint32_t *)(UART_BASE + 0x0Cu))
#define ENABLE_BOTH_WAYS ((1u << 13) | (1u << 3) | (1u << 2))

#include "uart_stm32.h"
