"""Instruments: what measures current and temperature beside a board; recorded traces replay as one."""

INSTRUMENTS = {
    "replay": "backends.instruments.replay:Replay",
}
