#!/usr/bin/env bash
# A real Slurm on this machine: four nodes of two CPUs and two make-believe GPUs each, on loopback only.
#
#   deploy/slurm/slurm.sh up FOLDER PORT                      ports PORT to PORT+4; starts only what is not up
#   deploy/slurm/slurm.sh down FOLDER                         ends its jobs and daemons
#   deploy/slurm/slurm.sh kill-node FOLDER N [--keep-steps]   N is 1 to 4; its jobs die too, or run on unseen
#   deploy/slurm/slurm.sh revive-node FOLDER N
#
# Any user can run it. FOLDER is private and its path short, for it holds sockets. Clients find this Slurm by
# `export SLURM_CONF=FOLDER/slurm.conf`. A lost node is noticed within 20 s, and its jobs may start again 6 s
# later. Needs Debian's slurm-wlm and munge.
set -euo pipefail
shopt -s nullglob
PATH=$PATH:/usr/sbin:/sbin

# The process lives, and its id was not given to another program.
is_up() { [ -s "$1" ] && [ "$(ps -o comm= -p "$(cat "$1")")" = "$2" ]; }

has_ended() { case $(ps -o stat= -p "$1") in "" | Z*) return 0 ;; *) return 1 ;; esac }

stop() {
    is_up "$1" "$2" || return 0
    pid=$(cat "$1")
    kill "$pid" || return 0
    for _ in $(seq 50); do
        has_ended "$pid" && return 0
        sleep 0.1
    done
    kill -9 "$pid" || true
}

configure() {
    host=$(hostname -s)
    cat > slurm.conf <<END
ClusterName=statsprep
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$1
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
SlurmdParameters=config_overrides
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
CredType=cred/munge
# A job that starts again waits until its credential has expired: 120 s by default.
AuthInfo=socket=$folder/run/munge.sock,cred_expire=5
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool/%n
SlurmctldPidFile=$folder/run/slurmctld.pid
SlurmdPidFile=$folder/run/slurmd.%n.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd.%n.log
# Not linuxproc, which loses the children of a shell that has died.
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
SlurmdTimeout=5
SlurmctldTimeout=5
MessageTimeout=5
BatchStartTimeout=10
KillWait=2
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
NodeName=n[1-4] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$(($1 + 1))-$(($1 + 4))] CPUs=2 RealMemory=5000 Gres=gpu:2
PartitionName=cpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
    echo "NodeName=n[1-4] Name=gpu File=$folder/gpus/gpu[0-1]" > gres.conf
    # Slurm wants devices; these do no harm.
    ln -sf /dev/null gpus/gpu0
    ln -sf /dev/zero gpus/gpu1
    [ -s munge.key ] || (umask 077 && head -c 128 /dev/urandom > munge.key)
}

start() {
    mkdir -p "$1"/{state,spool,log,run,gpus}
    enter "$1"
    [ -s slurm.conf ] && is_up run/slurmctld.pid slurmctld || configure "$2"
    is_up run/munged.pid munged ||
        munged --force --num-threads=2 --key-file="$folder/munge.key" --socket="$folder/run/munge.sock" \
            --pid-file="$folder/run/munged.pid" --seed-file="$folder/run/munged.seed" \
            --log-file="$folder/log/munged.log"
    is_up run/slurmctld.pid slurmctld || slurmctld
    for node in 1 2 3 4; do revive "$node"; done
    SECONDS=0
    until [ "$(sinfo -h -N -t idle,alloc,mix -o %N 2>/dev/null | wc -l)" = 4 ]; do
        if [ "$SECONDS" -ge 30 ]; then
            echo "Slurm is not ready after 30 s; the last lines of $folder/log/slurmctld.log are:" >&2
            tail -n 5 log/slurmctld.log >&2
            exit 1
        fi
        sleep 0.1
    done
    sinfo -N
}

revive() { is_up "run/slurmd.n$1.pid" slurmd || slurmd -N "n$1"; }

# The supervisors of a node's steps first, so that none of them reports the death of its processes.
kill_steps() {
    pids=$(for socket in spool/n"$1"/n"$1"_*; do
        step=${socket##*_}
        scontrol listpids "${step%.*}" "n$1" 2>/dev/null | awk '$1 + 0 > 0 { print $1 }'
    done)
    for pid in $pids; do
        parent=$(ps -o ppid= -p "$pid" | tr -d ' ')
        if [ "$(ps -o comm= -p "${parent:-0}")" = slurmstepd ]; then kill -9 "$parent" || true; fi
    done
    for pid in $pids; do kill -9 "$pid" 2>/dev/null || true; done
    rm -f spool/n"$1"/n"$1"_*
}

kill_node() {
    if is_up "run/slurmd.n$1.pid" slurmd; then kill -9 "$(cat "run/slurmd.n$1.pid")"; fi
    [ "${2:-}" = --keep-steps ] || kill_steps "$1"
}

end() {
    if is_up run/slurmctld.pid slurmctld; then squeue -h -o %A | xargs -r scancel || true; fi
    for node in 1 2 3 4; do
        stop "run/slurmd.n$node.pid" slurmd
        kill_steps "$node"
    done
    stop run/slurmctld.pid slurmctld
    stop run/munged.pid munged
}

enter() {
    cd "$1"
    folder=$PWD
    export SLURM_CONF=$folder/slurm.conf
}

case "${1:-} $#" in
    "up 3") start "$2" "$3" ;;
    "down 2") enter "$2" && end ;;
    "kill-node 3" | "kill-node 4") enter "$2" && kill_node "$3" "${4:-}" ;;
    "revive-node 3") enter "$2" && revive "$3" ;;
    *) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
