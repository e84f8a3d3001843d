#!/bin/bash
# Wait until this instance is to go, let its worker finish, and say so. Auto scaling then ends the instance.
# drain.sh GROUP HOOK [SECONDS BETWEEN LOOKS] [MOST SECONDS TO DRAIN]
set -uo pipefail
group=$1 hook=$2 look_s=${3:-5} most_s=${4:-172800}
metadata=${METADATA:-http://169.254.169.254}/latest
unit=proctor-worker.service

read_metadata() { # PATH: what the instance's metadata says, or nothing
  local token
  token=$(curl -sf -m 5 -X PUT "$metadata/api/token" -H 'X-aws-ec2-metadata-token-ttl-seconds: 300') || return 1
  curl -sf -m 5 "$metadata/meta-data/$1" -H "X-aws-ec2-metadata-token: $token"
}

wanted_away() { # auto scaling takes the instance, or a spot instance is needed elsewhere
  [ "$(read_metadata autoscaling/target-lifecycle-state)" = Terminated ] || read_metadata spot/instance-action >/dev/null
}

until wanted_away; do sleep "$look_s"; done
instance=$(read_metadata instance-id)
about=(--auto-scaling-group-name "$group" --lifecycle-hook-name "$hook" --instance-id "$instance")

# SIGTERM: the worker takes nothing more and finishes what runs; nothing here waits less than it needs.
systemctl stop --no-block "$unit"
began=$SECONDS
while systemctl is-active --quiet "$unit" || [ "$(systemctl show -p ActiveState --value "$unit")" = deactivating ]; do
  if [ $((SECONDS - began)) -ge "$most_s" ]; then
    # Its trials are tried again by others: leases end, and no result is counted twice.
    systemctl kill --signal=KILL "$unit"
    break
  fi
  aws autoscaling record-lifecycle-action-heartbeat "${about[@]}" || true
  sleep "$look_s"
done
aws autoscaling complete-lifecycle-action "${about[@]}" --lifecycle-action-result CONTINUE || true
