/* Second boot stage of the RP2040: the first 256 bytes of its Flash, the last four of them a checksum.
 *
 * The boot ROM copies it to the end of the SRAM, compares the checksum and runs it there (RP2040 datasheet, section 2.8.1).
 * It lets the SSI (section 4.10) answer reads of 0x10000000 and up by the command 03h of every serial Flash, a bit at a
 * time at a quarter of the clock: slower than what an SDK sets up for one kind of Flash. Never on silicon.
 * The checksum is a CRC-32 of the 252 bytes before it, polynomial 0x04C11DB7, from 0xFFFFFFFF, nothing reflected or
 * inverted (section 2.8.1.3.1): whoever changes the code works it out anew, and the tests say what it should be.
 */
__asm__(".syntax unified\n"
        ".section .boot, \"ax\", %progbits\n"
        ".balign 4\n"
        ".thumb\n"
        ".global boot_stage\n"
        ".thumb_func\n"
        "boot_stage:\n"
        "    adr r0, words\n"
        "    ldmia r0!, {r1, r2, r3, r4, r5, r6}\n"
        "    movs r7, #0\n"
        "    str r7, [r1, #0x08]\n" /* SSIENR: off while it is set up */
        "    str r2, [r1, #0x14]\n" /* BAUDR */
        "    str r3, [r1, #0x00]\n" /* CTRLR0 */
        "    str r7, [r1, #0x04]\n" /* CTRLR1: one word a read */
        "    movs r2, #0xF4\n"
        "    str r4, [r1, r2]\n" /* SPI_CTRLR0 */
        "    movs r7, #1\n"
        "    str r7, [r1, #0x08]\n"
        "    str r5, [r6]\n"
        "    ldmia r5!, {r0, r1}\n"
        "    msr msp, r0\n"
        "    bx r1\n"
        ".balign 4\n"
        "words:\n"
        "    .word 0x18000000\n" /* the SSI */
        "    .word 4\n"          /* divider of the clock; even */
        "    .word 0x001F0300\n" /* frames of 32 bits, one line; sends command and address, then receives */
        "    .word 0x03000218\n" /* command 03h of 8 bits, address of 24, both on one line */
        "    .word 0x10000100\n" /* the vector table */
        "    .word 0xE000ED08\n" /* VTOR */
        ".org 252\n"
        "    .word 0x25CD1ADA\n"
        ".text\n");
