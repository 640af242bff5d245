/* What the arena's harness knows of its parts: the guard around an artifact's code, and the clock. */
#ifndef ARENA_H
#define ARENA_H

#include <stdint.h>

extern uint8_t _ram_start[], _ram_end[], _input_start[], _input_end[], _output_start[], _output_end[];

void guard_init(void);                           /* memory that the artifact owns, and no other */
void guard_run(const void *input, void *output); /* net(input, output), unprivileged */

void clock_init(void);
void clock_restart(void);   /* so that every run begins at the same phase, and counts repeat exactly */
uint64_t clock_ticks(void); /* since the restart */
uint64_t clock_before(void); /* ticks from the boot to the last restart */

void put_text(const char *text);
void put_hex(uint64_t value, int digits);

#endif
