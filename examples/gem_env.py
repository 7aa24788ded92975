"""Three games of gem (`pip install gem-llm==0.1.0`) as an environment: env: {name: examples/gem_env.py}

They have no expert: take a pretrained model, without demonstrations (docs/environments.md).
"""

from __future__ import annotations

import gem

from turncredit.data.env_wording import Words
from turncredit.envs.gym_text import Game, gym_text

ENVIRONMENT = gym_text(
    "gem",
    {
        "guess": Game(lambda: gem.make("game:GuessTheNumber-v0-easy"), "guess the number."),
        "2048": Game(lambda: gem.make("game:Game2048-v0-easy"), "reach the tile 64."),
        "mines": Game(lambda: gem.make("game:Minesweeper-v0-easy"), "reveal all cells without a mine."),
    },
    success=lambda last: last.observation.startswith("Congratulations"),  # their last rewards differ
    valid=lambda result: result.reward >= 0,  # gem takes 0.1 off for an action that it cannot read
    words=Words(setting="You play a text game.", examples=("\\boxed{5}",)),
)
