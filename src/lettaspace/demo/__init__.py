"""A small invented storage directory of Letta Code, to look at lettaspace with.

Two agents, four conversations: tool calls, parallel ones and a failing one among them, thinking,
an image, a compaction, several scripts. It is brought in like any other directory.
"""

from lettaspace.demo.directory import write_directory as write_directory
