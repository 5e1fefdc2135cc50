#!/bin/sh
# A backup a day, the last fourteen kept; to be run by cron or a timer as the user lettaspace.
set -eu

directory=${1:-/var/backups/lettaspace}
set -a
. /etc/lettaspace/host.env
set +a

/opt/lettaspace/bin/lettaspace --home /var/lib/lettaspace host backup \
    "$directory/host-$(date -u +%Y%m%dT%H%M%SZ).backup"
find "$directory" -name 'host-*.backup' -mtime +14 -delete
