#!/bin/sh
# A hook of dehydrated for DNS-01, for a zone in the Hetzner Cloud: it is called with deploy_challenge or clean_challenge, the domain, and
# twice what the record proves. It knows only the real endpoint.
case $1 in
deploy_challenge) action=add_records ;;
clean_challenge) action=remove_records ;;
*) exit 0 ;;
esac
exec curl -sSf -o /dev/null -H "Authorization: Bearer $HCLOUD_TOKEN" -H 'Content-Type: application/json' \
	-d "{\"records\": [{\"value\": \"\\\"$4\\\"\"}]}" "https://api.hetzner.cloud/v1/zones/$2/rrsets/_acme-challenge/TXT/actions/$action"
