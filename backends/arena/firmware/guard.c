/* The guard: an artifact's code runs unprivileged, and the MPU gives it its own RAM and the Flash, nothing else.
 *
 * So it cannot reach the serial port, the clock or the harness' memory: whoever tries ends in fault(), which says so.
 * ARMv7-M (Arm DDI 0403, sections B1.5 and B3.5): Cortex-M3, M4 and M7. -D: FLASH_ORIGIN, FLASH_LOG2.
 */
#include "arena.h"
#include "harness.h"

#define WORD(address) (*(volatile uint32_t *)(address))
#define CPACR WORD(0xE000ED88u)
#define FAULT_STATUS WORD(0xE000ED28u)
#define MEMORY_FAULT_ADDRESS WORD(0xE000ED34u)
#define BUS_FAULT_ADDRESS WORD(0xE000ED38u)
#define MEMORY_FAULT_KNOWN (1u << 7)
#define BUS_FAULT_KNOWN (1u << 15)
#define MPU_CONTROL WORD(0xE000ED94u)
#define MPU_NUMBER WORD(0xE000ED98u)
#define MPU_BASE WORD(0xE000ED9Cu)
#define MPU_ATTRIBUTES WORD(0xE000EDA0u)
#define ON_WITH_ALL_FOR_PRIVILEGED 5u
#define NORMAL_MEMORY (1u << 17)
#define READ_ONLY (6u << 24)
#define READ_WRITE (3u << 24)
#define NEVER_EXECUTE (1u << 28)
#define WINDOW_LOG2 17 /* 128 KB: the artifact's RAM, and what the harness keeps behind it */
#define STACKED_PC 6

extern uint32_t _data_load[], _data_start[], _data_end[], _bss_start[], _bss_end[];
extern uint32_t _harness_bss_start[], _harness_bss_end[], _harness_stack_end[], _stack_end[];

void reset(void);
void supervisor_call(void);

static void region(uint32_t number, uint32_t base, uint32_t log2, uint32_t disabled, uint32_t attributes) {
    MPU_NUMBER = number;
    MPU_BASE = base;
    MPU_ATTRIBUTES = attributes | NORMAL_MEMORY | disabled << 8 | (log2 - 1) << 1 | 1;
}

/* A region has eight parts that can be left out, so the RAM's size, in base 8, takes four regions down to 32 bytes. */
void guard_init(void) {
    uint32_t at = (uint32_t)_ram_start, left = (uint32_t)(_ram_end - _ram_start);
    region(0, FLASH_ORIGIN, FLASH_LOG2, 0, READ_ONLY);
    for (uint32_t number = 1, log2 = WINDOW_LOG2; number <= 4; number++, log2 -= 3) {
        const uint32_t part = 1u << (log2 - 3), parts = left / part;
        if (parts) region(number, at, log2, 0xFFu << parts & 0xFFu, READ_WRITE | NEVER_EXECUTE);
        at += parts * part;
        left -= parts * part;
    }
    MPU_CONTROL = ON_WITH_ALL_FOR_PRIVILEGED;
    __asm__ volatile("dsb\n\tisb" ::: "memory");
}

#if defined(__ARM_FP)
#define SAVE_FLOATS "vpush {s16-s31}\n"
#define RESTORE_FLOATS "vpop {s16-s31}\n"
#else
#define SAVE_FLOATS
#define RESTORE_FLOATS
#endif

/* The harness' registers wait on its own stack, which net() cannot reach. */
__attribute__((naked, noinline)) static void call_unprivileged(const void *input, void *output, void *stack) {
    (void)input, (void)output, (void)stack;
    __asm__ volatile("push {r3-r11, lr}\n" SAVE_FLOATS "msr psp, r2\n"
                     "movs r3, #3\n" /* unprivileged, on the artifact's stack */
                     "msr control, r3\n"
                     "isb\n"
                     "ldr r3, =net\n"
                     "blx r3\n"
                     "svc 0\n"
                     "unprivileged_end:\n"
                     "movs r0, #0\n"
                     "msr control, r0\n"
                     "isb\n" RESTORE_FLOATS "pop {r3-r11, pc}\n"
                     ".ltorg\n");
}

/* Gives the privilege back at the one instruction behind net(), and nowhere else. */
__attribute__((naked)) void supervisor_call(void) {
    __asm__ volatile("tst lr, #4\n"
                     "beq 1f\n"
                     "mrs r0, psp\n"
                     "ldr r1, [r0, #24]\n"
                     "ldr r2, =unprivileged_end\n"
                     "cmp r1, r2\n"
                     "bne 1f\n"
                     "mrs r3, control\n"
                     "bic r3, r3, #1\n"
                     "msr control, r3\n"
                     "isb\n"
                     "bx lr\n"
                     "1: b fault\n"
                     ".ltorg\n");
}

void guard_run(const void *input, void *output) {
    call_unprivileged(input, output, _stack_end);
}

/* FAULT <fault status> <address that was asked for, or 0> <where, or 0>: Arm DDI 0403, section B3.2.15. */
void fault(void) {
    const uint32_t status = FAULT_STATUS;
    uint32_t address = 0, where = 0;
    const uint32_t *stacked;
    __asm__ volatile("mrs %0, psp" : "=r"(stacked));
    if (status & MEMORY_FAULT_KNOWN) address = MEMORY_FAULT_ADDRESS;
    if (status & BUS_FAULT_KNOWN) address = BUS_FAULT_ADDRESS;
    if ((const uint8_t *)stacked >= _ram_start && (const uint8_t *)(stacked + STACKED_PC) < _ram_end)
        where = stacked[STACKED_PC];
    put_text("FAULT ");
    put_hex(status, 8);
    put_text(" ");
    put_hex(address, 8);
    put_text(" ");
    put_hex(where, 8);
    put_text("\n");
    for (;;) {
    }
}

void reset(void) {
#if defined(__ARM_FP)
    CPACR |= 0xFu << 20; /* the FPU, for the artifact too */
    __asm__ volatile("dsb\n\tisb" ::: "memory");
#endif
    const uint32_t *from = _data_load;
    for (volatile uint32_t *to = _data_start; to < _data_end;) *to++ = *from++;
    for (volatile uint32_t *to = _bss_start; to < _bss_end;) *to++ = 0;
    for (volatile uint32_t *to = _harness_bss_start; to < _harness_bss_end;) *to++ = 0;
    main();
    for (;;) {
    }
}

typedef void (*handler)(void);

__attribute__((section(".vectors"), used)) static const struct {
    uint32_t *stack;
    handler exceptions[15];
} vectors = {
    _harness_stack_end,
    {
        reset, fault, fault, fault, fault, fault,          /* reset, NMI, hard, memory, bus, usage fault */
        fault, 0, 0, 0, supervisor_call, fault, 0, fault, /* reserved, SVC, debug, reserved, PendSV */
        systick_wrap,
    },
};
