"""One colour a wall, everywhere; told apart by people who see colours differently.

The palette is that of Okabe and Ito (2008), https://jfly.uni-koeln.de/color/.
"""

from wallscope.model.enums import DeviceState, Wall

COMPUTE = "#0072B2"
COMMUNICATION = "#E69F00"
MEMORY = "#CC79A7"
HOST = "#009E73"
UNATTRIBUTED = "#8A8A8A"

WALL_COLOURS = {
    Wall.COMPUTE: COMPUTE,
    Wall.COMMUNICATION: COMMUNICATION,
    Wall.MEMORY: MEMORY,
    Wall.HOST: HOST,
    Wall.UNATTRIBUTED: UNATTRIBUTED,
}

STATE_COLOURS = {
    DeviceState.COMPUTE: COMPUTE,
    DeviceState.OPAQUE_GRAPH: UNATTRIBUTED,
    DeviceState.EXPOSED_COMMUNICATION: COMMUNICATION,
    DeviceState.EXPOSED_COPY: MEMORY,
    DeviceState.IDLE: "default",
}
