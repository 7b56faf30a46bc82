#!/usr/bin/env bash
# Shows that the conformance specs see a broken CCM: it breaks the example CCM in ten ways, one at a time, and fails unless the spec that
# names the promise fails. scripts/broken-examples.sh [number ...]
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/need.sh go
out=$PWD/out/broken-examples
rm -rf "$out"
mkdir -p "$out"

# A file of ccm/example/provider | what is replaced, once | by what | a part of the text of the spec that must fail
broken=(
	'nodes|MakeProviderID(i.Zone, i.ID)|MakeProviderID(i.Zone, i.Name)|gets its server.s provider ID'
	'nodes|return err == nil, err|return err == nil, nil|runs stays while it is NotReady, and for reads'
	'nodes|return i.State == "stopped", nil|return i.State == "never", nil|is off is tainted'
	'nodes|if node.Spec.ProviderID != "" {|if len(node.Name) == 0 {|is matched by its provider ID'
	'services|case !slices.Equal(l.Backends, backends):|case len(l.Backends) > len(backends):|follow nodes that come and go'
	'services|c.client.DeleteLoadBalancer(ctx, name)|error(nil)|is deleted with its load balancer'
	'services|wanted \|\| len(errs) > 0|wanted \|\| len(errs) >= 0|can be removed while another one serves'
	'services|return cloudprovider.DefaultLoadBalancerName(service)|return "lb-" + service.ResourceVersion|keeps its load balancer, its address'
	'routes|c.client.SetRoute(ctx, prefix, id)|func(...any) error { return nil }(prefix, id)|leads to each node.s pods'
	'routes|err = c.client.DeleteRoute(ctx, prefix, r.Name)|_ = prefix|goes with its node, and no other does'
)

# check builds the n-th broken version and runs the spec.
check() {
	local n=$1 file what by spec folder=$out/$1
	IFS='|' read -r file what by spec <<<"${broken[$((n - 1))]//\\|/$'\001'}"
	what=${what//$'\001'/|} by=${by//$'\001'/|}
	mkdir -p "$folder"
	local path=$PWD/ccm/example/provider/$file.go text
	text=$(<"$path")
	if [[ $text != *"$what"* ]]; then
		echo "$n: $path has no longer: $what"
		return 1
	fi
	printf '%s\n' "${text/"$what"/"$by"}" >"$folder/$file.go"
	printf '{"Replace": {"%s": "%s"}}' "$path" "$folder/$file.go" >"$folder/overlay.json"
	if ! go build -overlay "$folder/overlay.json" -o "$folder/example-ccm" ./ccm/example; then
		echo "$n: does not compile"
		return 1
	fi
	if E2E_CCM=$folder/example-ccm E2E_OUT=$folder/out E2E_CLUSTER=embedded CCM=e2e/ccms/example-ccm.yaml FOCUS=$spec LABELS=conformance PROCS=2 \
		scripts/e2e.sh >"$folder/log" 2>&1; then
		echo "$n: not seen: \"$what\" became \"$by\", and no spec failed: $spec"
		return 1
	fi
	if ! grep -q "^failed: .*$spec" "$folder/log"; then
		echo "$n: the run failed without the spec: see $folder/log"
		return 1
	fi
	echo "$n: seen: $(grep -m1 "^failed: .*$spec" "$folder/log" | cut -c9-)"
}

bad=0
for n in "${@:-$(seq ${#broken[@]})}"; do
	for one in $n; do check "$one" || bad=$((bad + 1)); done
done
echo "$bad broken versions were not seen"
[ "$bad" -eq 0 ]
