#!/usr/bin/env bash
# A real S3 on this machine, in memory: Ceph's monitor, one OSD, a manager and radosgw, on loopback only.
#
#   deploy/storage/rgw.sh up FOLDER PORT      key "statsprep", secret "statsprep"; ports PORT to PORT+2
#   deploy/storage/rgw.sh down FOLDER
#
# FOLDER is private and its path short, for it holds sockets. Needs Debian's ceph-mon ceph-osd ceph-mgr radosgw
# curl uuid-runtime.
set -euo pipefail

stop() {
    # The monitor last: without it the others hang.
    for name in client.rgw.a mgr.x osd.0 mon.a; do
        [ -s "$1/run/$name.pid" ] || continue
        pid=$(cat "$1/run/$name.pid")
        kill "$pid" 2>/dev/null || continue
        for _ in $(seq 50); do
            case $(ps -o stat= -p "$pid") in "" | Z*) break ;; esac
            sleep 0.1
        done
        kill -9 "$pid" 2>/dev/null || true
    done
}

start() {
    folder=$1 port=$2
    mkdir -p "$folder"/{mon,osd,mgr,rgw,log,run}
    cd "$folder"
    fsid=$(uuidgen)
    monitor="[v2:127.0.0.1:$((port + 1)),v1:127.0.0.1:$((port + 2))]"
    cat > ceph.conf <<END
[global]
fsid = $fsid
mon host = $monitor
public addr = 127.0.0.1
cluster addr = 127.0.0.1
keyring = $folder/keyring
mon data = $folder/mon
osd data = $folder/osd
mgr data = $folder/mgr
rgw data = $folder/rgw
run dir = $folder/run
admin socket = $folder/run/\$name.asok
pid file = $folder/run/\$name.pid
log file = $folder/log/\$name.log
log to stderr = false
osd objectstore = memstore
memstore device bytes = 1073741824
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon max pg per osd = 1000
rgw frontends = beast endpoint=127.0.0.1:$port
rgw dns name = 127.0.0.1
rgw run sync thread = false
END
    export CEPH_CONF=$folder/ceph.conf
    ceph-authtool --create-keyring keyring --gen-key -n mon. --cap mon 'allow *' >/dev/null
    ceph-authtool keyring --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *'
    ceph-authtool keyring --gen-key -n client.rgw.a --cap mon 'allow rwx' --cap osd 'allow rwx' --cap mgr 'allow rw'
    ceph-authtool keyring --gen-key -n mgr.x --cap mon 'allow profile mgr' --cap osd 'allow *'
    monmaptool --create --clobber --fsid "$fsid" --addv a "$monitor" monmap >/dev/null
    ceph-mon --mkfs -i a --monmap monmap --keyring keyring
    ceph-mon -i a
    osd=$(uuidgen)
    key=$(ceph-authtool --gen-print-key)
    echo "{\"cephx_secret\": \"$key\"}" | ceph osd new "$osd" -i - >/dev/null
    ceph-authtool keyring -n osd.0 --add-key "$key" --cap mon 'allow profile osd' --cap osd 'allow *' >/dev/null
    ceph-osd -i 0 --mkfs --osd-uuid "$osd" --key "$key" >/dev/null 2>&1
    ceph-osd -i 0
    ceph-mgr -i x
    for _ in $(seq 150); do
        ceph osd stat 2>/dev/null | grep -q '1 up' && break
        sleep 0.2
    done
    radosgw-admin user create --uid=statsprep --display-name=statsprep \
        --access-key=statsprep --secret-key=statsprep >/dev/null
    radosgw -n client.rgw.a
    for _ in $(seq 300); do
        curl --silent --output /dev/null "http://127.0.0.1:$port/" && exit 0
        sleep 0.1
    done
    echo "radosgw did not answer on port $port; see $folder/log" >&2
    exit 1
}

case ${1:-} in
    up) start "$2" "$3" ;;
    down) stop "$2" ;;
    *) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
