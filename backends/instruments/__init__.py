"""Instruments: what measures current and temperature beside a board; recorded traces replay as one."""

INSTRUMENTS = {
    "replay": "backends.instruments.replay:Replay",
    "ppk2": "backends.instruments.ppk2:Ppk2",
    "lpm01a": "backends.instruments.lpm01a:Lpm01a",
    "joulescope": "backends.instruments.joulescope:Joulescope",
    "thermometer": "backends.instruments.thermometer:Thermometer",
}
