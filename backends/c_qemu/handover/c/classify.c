
/* The first of equals wins. */
static int largest(const net_value *scores) {
    int best = 0, at;
    for (at = 1; at < NET_CLASSES; at++)
        if (scores[at] > scores[best]) best = at;
    return best;
}

int net_classify(TAKEN) {
    net_value scores[NET_CLASSES];
    return answer(GIVEN, scores) ? largest(scores) : -1;
}
