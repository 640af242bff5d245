/* Each row or column is one step of all windows that are under way; none of it is kept. */
static uint16_t left[STATES]; /* steps until a window ends; more than a window's where it has yet to begin */
static int8_t found[NET_OUTPUT_BYTES];
static int answered;

static void begin(void) {
    for (uint32_t state = 0; state < STATES; state++) left[state] = (uint16_t)(STEPS + state * (STEPS / STATES));
    answered = 0;
}
static void move_on(void) {
    for (uint32_t state = 0; state < STATES; state++) {
        if (left[state] <= STEPS) {
            int8_t scores[NET_OUTPUT_BYTES];
            net_step(state, left[state] == STEPS, stream_window, scores);
            if (left[state] == 1) {
                memcpy(found, scores, sizeof found);
                answered = 1;
                left[state] = STEPS + 1;
            }
        }
        left[state]--;
    }
}
int stream_result(int8_t *scores) {
    if (answered) memcpy(scores, found, sizeof found);
    return answered;
}
