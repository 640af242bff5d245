/* What the boot ROM of an RP2350 looks for in the first 4 KB of its Flash: here is a program, for the Arm cores, secure.
 *
 * RP2350 datasheet, section 5.9.5.1 (the smallest IMAGE_DEF for Arm). Without an entry point in it the program begins by
 * the vector table at the start of the Flash. Never on silicon.
 */
#include <stdint.h>

__attribute__((section(".boot_block"), used)) static const uint32_t image_definition[] = {
    0xFFFFDED3u, /* a block begins */
    0x10210142u, /* item IMAGE_TYPE, one word: executable, secure, Arm, RP2350 */
    0x000001FFu, /* the last item; one word of items before it */
    0x00000000u, /* the next block of the ring is this one */
    0xAB123579u, /* the block ends */
};
