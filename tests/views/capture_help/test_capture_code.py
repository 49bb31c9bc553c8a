"""The code that `capture-help --profiler torch` prints runs in a script that has a loader and a step."""

import ast
import builtins

from wallscope.views.capture_help import write_profile_code

OF_THE_SCRIPT = {"loader", "train_step"}


def test_the_code_is_python_and_defines_all_other_names():
    tree = ast.parse("\n".join(write_profile_code()))
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bound = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    bound |= {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    bound |= {
        argument.arg for node in ast.walk(tree) if isinstance(node, ast.Lambda) for argument in node.args.args
    }
    read = {node.id for node in names if isinstance(node.ctx, ast.Load)}

    assert read - bound - set(dir(builtins)) == OF_THE_SCRIPT
    assert {"profile", "schedule", "rank", "torch"} <= read
