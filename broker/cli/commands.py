"""The table of all commands: where each one is, and what it is for in a line. Nothing is imported to read it."""

from __future__ import annotations

from typing import Final, NamedTuple


class Entry(NamedTuple):
    """A command, or a group of them."""

    home: str  # ``module:name`` of it below ``tiercel.broker.cli``; empty for a group that only holds others
    help: str  # what it is for, in a line that fits on 80 columns behind its name
    example: str = ""  # a command line, for a group that only holds others; commands bring their own


SECTIONS: Final[dict[str, dict[str, Entry]]] = {
    "A broker on this machine": {
        "up": Entry("local:up", "Run a broker here, with an agent and an inference server."),
        "down": Entry("local:down", "Stop what 'up' runs, or has left behind."),
        "doctor": Entry("doctor:doctor", "Say what this machine has and lacks, and how to mend it."),
    },
    "Jobs": {
        "init": Entry("init:init", "Write a tiercel.yaml by reading a training script."),
        "check": Entry("check:check", "Try a script, its export and a checkpoint, before a long run."),
        "submit": Entry("submit:submit", "Create a training job from a folder, a spec or flags."),
        "sweep": Entry("sweep:sweep", "Search parameters of a script by many jobs."),
        "ls": Entry("jobs:ls", "List jobs."),
        "show": Entry("jobs:show", "Show all that is known about a job."),
        "watch": Entry("watch:watch", "Follow jobs as they learn."),
        "top": Entry("top:top", "Watch nodes, jobs and endpoints on one screen."),
        "events": Entry("events:events", "Print what happens to jobs, a line for each."),
        "follow": Entry("follow:follow", "Copy what jobs report to MLflow or TensorBoard."),
        "logs": Entry("jobs:logs", "Print the output of a job's training script."),
        "files": Entry("files:files", "List or fetch the files that a job left behind."),
        "cancel": Entry("jobs:cancel", "Stop a job; what it delivered keeps serving."),
        "suspend": Entry("jobs:suspend", "Have a job free what it holds and wait."),
        "resume": Entry("jobs:resume", "Let a job that is over go on from its last checkpoint."),
        "retry": Entry("jobs:retry", "Start a job that is over again."),
        "priority": Entry("jobs:priority", "Give a job another priority among your own."),
        "explain": Entry("jobs:explain", "Say why a job or an endpoint has its share."),
        "secret": Entry("", "Values that jobs find in their environment.", "tiercel secret set WANDB_KEY < key.txt"),
        "secret set": Entry("secrets:set_secret", "Keep a value from standard input, or typed unseen."),
        "secret ls": Entry("secrets:list_secrets", "List the names of secrets; nothing tells a value."),
        "secret remove": Entry("secrets:remove_secret", "Forget a secret."),
    },
    "Endpoints": {
        "endpoints": Entry("endpoints:endpoints", "List endpoints; delete one, or say who may ask it."),
        "endpoints delete": Entry("endpoints:delete", "Forget an endpoint and its versions for good."),
        "endpoints access": Entry("endpoints:set_access", "Say who may ask an endpoint."),
        "deploy": Entry("deploy:deploy", "Make an ONNX file a version of an endpoint, without a job."),
        "infer": Entry("infer:infer", "Ask an endpoint."),
        "generate": Entry("generate:generate", "Have an endpoint generate an answer, token by token."),
        "models": Entry("", "Versions that endpoints have and had.", "tiercel models ls digits"),
        "models ls": Entry("models.reading:ls", "List versions, the newest first."),
        "models show": Entry("models.reading:show", "Show a version's card, and where it comes from."),
        "models pull": Entry("models.reading:pull", "Fetch a version's ONNX file."),
        "models compare": Entry("models.reading:compare", "Put two versions side by side."),
        "models register": Entry("models.registering:register", "Have MLflow's registry say what there is."),
        "models promote": Entry("models.choosing:promote", "Let a version answer, whatever is better or newer."),
        "models pin": Entry("models.choosing:pin", "Let a version answer and stay whatever is delivered."),
        "models remove": Entry("models.choosing:remove", "Remove a version's files for good."),
        "models keep": Entry("models.choosing:keep", "Say of how many versions files are kept."),
        "models rollback": Entry("models.choosing:rollback", "Let an earlier version answer again."),
        "key": Entry("", "Keys of endpoints, for programs that are no tenant.", "tiercel key create --endpoint digits"),
        "key create": Entry("keys:create", "Print a new key, this once."),
        "key ls": Entry("keys:list_keys", "List keys; nothing tells a key itself."),
        "key revoke": Entry("keys:revoke", "End a key for good."),
    },
    "Machines": {
        "status": Entry("status:status", "Show the cluster at a glance, and what to see to."),
        "what-if": Entry("what_if:what_if", "Say what would happen if something were different."),
        "dashboard": Entry("dashboard:dashboard", "Open the dashboard in a browser, signed in."),
        "nodes": Entry("cluster:nodes", "List nodes, their accelerators and data sets."),
        "node": Entry("", "Which machines are nodes, and what they offer to jobs.", "tiercel node drain n2 --wait"),
        "node data": Entry("", "Data sets that jobs find on this node.", "tiercel node data add mnist /mnt/mnist"),
        "node data add": Entry("node_data:add", "Offer a file or folder to jobs, to read."),
        "node data ls": Entry("node_data:list_", "List what this node offers, with its paths."),
        "node data remove": Entry("node_data:remove", "Offer a data set no more."),
        "node token": Entry("membership:token_", "Print the line that makes another machine a node."),
        "node remove": Entry("membership:remove_", "Take a machine that joined off the list."),
        "node drain": Entry("maintenance:drain", "Let nothing new start on a node."),
        "node undrain": Entry("maintenance:undrain", "Let jobs start on a node again."),
        "join": Entry("membership:join", "Make this machine a node of a broker on another one."),
        "du": Entry("disk:du", "Say what takes room on disks."),
        "gc": Entry("disk:gc", "Remove what is kept no longer."),
    },
    "Operators": {
        "login": Entry("login.command:login", "Sign in at the provider that the broker takes tokens of."),
        "token": Entry("", "Tokens that the operator gives out.", "tiercel token create alice --tenant vision"),
        "token create": Entry("tokens:create", "Make a token and print it, this once."),
        "token ls": Entry("tokens:ls", "List tokens."),
        "token revoke": Entry("tokens:revoke", "Take a token back."),
        "quota": Entry("", "What tenants may use, and do.", "tiercel quota show"),
        "quota show": Entry("quota:show", "Say what tenants may use, and do."),
        "quota set": Entry("quota:set_", "Say how many unfinished jobs a tenant may have."),
        "policy": Entry("", "The policy that decides about shares.", "tiercel policy set fifo"),
        "policy show": Entry("policy:show", "Say which policy decides, and which others there are."),
        "policy set": Entry("policy:set_", "Have another policy decide, while the broker runs."),
        "audit": Entry("audit:audit", "List who changed what and who was refused."),
        "authority": Entry("", "The key that vouches for broker and nodes.", "tiercel authority rotate"),
        "authority show": Entry("authority:show", "Show the authority, and how far its rotation is."),
        "authority rotate": Entry("authority:rotate", "Make a new authority, and give nodes certificates by it."),
        "authority finish": Entry("authority:finish", "Believe the earlier authority no more."),
        "backup": Entry("backup:backup", "Copy database and keys of a broker into a file."),
        "restore": Entry("backup:restore", "Make a state directory of what was saved of a broker."),
        "mqtt": Entry("", "An MQTT broker of your own.", "tiercel mqtt config --dir /etc/mosquitto/tiercel"),
        "mqtt config": Entry("mqtt:config", "Write the files by which mosquitto lets tenants in."),
        "proxy": Entry("", "An HAProxy of your own before the servers.", "tiercel proxy config --dir proxy --watch"),
        "proxy config": Entry("proxy.command:config", "Write an HAProxy's configuration for endpoints."),
        "version": Entry("cluster:version", "Print Tiercel's version."),
    },
}
"""By what people want to do. A command of a group stands as ``group command``."""

COMMANDS: Final[dict[str, Entry]] = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


def names_below(path: str) -> list[str]:
    """The last words of the commands right below a group, in the order of the table; all of it where ``path`` is ""."""
    start = f"{path} " if path else ""
    below = (name.removeprefix(start) for name in COMMANDS if name.startswith(start))
    return [name for name in below if " " not in name]
