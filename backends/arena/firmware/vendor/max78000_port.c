/* MAX78000, by Analog Devices' MSDK (Maxim's peripheral drivers): console, and a clock that no system clock changes.
 *
 * Compiled and linked by the MSDK's own makefiles, board and drivers; no board was at hand.
 */
#include "app.h"
#include "arena.h"
#include "board.h"
#include "harness.h"
#include "mxc_device.h"
#include "port.h"
#include "tmr.h"
#include "uart.h"

#define CONSOLE MXC_UART_GET_UART(CONSOLE_UART)
#define CLOCK MXC_TMR3 /* at IBRO, 7.3728 MHz / 128 = 57,600 Hz, whatever the core runs at; wraps after 20 hours */

static uint32_t restarted;

void uart_init(void) {
    Console_Init();
}

void arena_console(void) {
    Console_Init();
}

void uart_put(uint8_t byte) {
    while (MXC_UART_WriteCharacterRaw(CONSOLE, byte) < 0) {
    }
}

uint8_t uart_get(void) {
    int found;
    while ((found = MXC_UART_ReadCharacterRaw(CONSOLE)) < 0) app_idle();
    return (uint8_t)found;
}

void clock_init(void) {
    mxc_tmr_cfg_t settings = {
        .pres = MXC_TMR_PRES_128,
        .mode = MXC_TMR_MODE_CONTINUOUS,
        .bitMode = MXC_TMR_BIT_MODE_32,
        .clock = MXC_TMR_IBRO_CLK,
        .cmp_cnt = UINT32_MAX,
        .pol = 0,
    };
    MXC_TMR_Init(CLOCK, &settings, false);
    MXC_TMR_Start(CLOCK);
}

/* In microseconds: 1,000,000 / 57,600 = 625 / 36. */
static uint64_t micros(uint32_t ticks) {
    return (uint64_t)ticks * 625u / 36u;
}

void clock_restart(void) {
    restarted = MXC_TMR_GetCount(CLOCK);
}

uint64_t clock_ticks(void) {
    return micros(MXC_TMR_GetCount(CLOCK) - restarted);
}

uint64_t clock_before(void) {
    return micros(restarted);
}

void port_begin(void) {
}

void port_deliver(const uint8_t *output, uint32_t length) {
    (void)output, (void)length;
}
