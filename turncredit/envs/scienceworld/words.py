"""ScienceWorld's wording in prompts."""

from __future__ import annotations

from turncredit.data.env_wording import Words

WORDS = Words(
    setting="You do a science experiment in a text game. You can go only from a room to the next one, or teleport.",
    game="a text game about science experiments",
    task="Your task is to",
    examples=("go to kitchen", "pick up thermometer", "focus on metal pot"),
    templates=(
        "go to {room}",
        "teleport to {room}",
        "look around",
        "look in {container}",
        "examine {object}",
        "inventory",
        "read {document}",
        "open {container}",
        "close {container}",
        "pick up {object}",
        "put down {object}",
        "move {object} to {container}",
        "pour {container} into {container}",
        "dunk {container} into {container}",
        "mix {container}",
        "activate {device}",
        "deactivate {device}",
        "use {tool} on {object}",
        "connect {terminal} to {terminal}",
        "disconnect {object}",
        "eat {object}",
        "flush {object}",
        "focus on {object the task is about}",
        "wait",
        "wait1",
        "{number, where a request is ambiguous}",
    ),
)
