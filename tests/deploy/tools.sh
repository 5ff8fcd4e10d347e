#!/bin/sh
# Prints the folder of the cluster's programs, which it builds first where they are not there:
#
#   sh tests/deploy/tools.sh helm              # helm alone
#   sh tests/deploy/tools.sh all               # with the control plane of Kubernetes, and nodes in name alone
#   sh tests/deploy/tools.sh node              # and what runs pods on a real node, and names services for them
#
# Sources come as Go modules, by the hashes of go.sum. What is built stays in BOS_CACHE by the digest of
# go.mod and go.sum, so that a build is made once on a machine, and in CI while its cache lasts.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
go="$root/services/rest/go.sh"
digest=$(cat "$here/cluster/go.mod" "$here/cluster/go.sum" | sha256sum | cut -c 1-16)
folder=${BOS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/bos}/cluster/$digest
mkdir -p "$folder"

# Clients cannot read the version of a server that names none.
version=$(sed -n 's|^\tk8s.io/kubernetes v\([0-9.]*\).*|\1|p' "$here/cluster/go.mod")
stamp=k8s.io/component-base/version
flags="-s -w -X $stamp.gitVersion=v$version -X $stamp.gitMajor=${version%%.*}"
flags="$flags -X $stamp.gitMinor=$(echo "$version" | cut -d . -f 2) -X $stamp.gitTreeState=clean"

build() { # name package: a program, unless it is there
    [ -x "$folder/$1" ] && return
    begun=$(date +%s)
    echo "Building $1, once on this machine ..." >&2
    sh "$go" build -C "$here/cluster" -ldflags="$flags" -o "$folder/.$1.$$" "$2" >&2
    mv "$folder/.$1.$$" "$folder/$1"
    echo "Built $1 in $(($(date +%s) - begun)) s." >&2
}

module() { # folder module: where the module's files are
    sh "$go" mod download -C "$here/$1" "$2" >&2
    sh "$go" list -C "$here/$1" -m -f '{{.Dir}}' "$2"
}

# What nodes and pods do is said by files of kwok's own module; by itself it does nothing.
stages() {
    rm -rf "$folder/stages"
    from=$(module cluster sigs.k8s.io/kwok)/kustomize/stage
    mkdir -p "$folder/.stages.$$"
    for file in "$from"/node/fast/*.yaml "$from"/node/heartbeat-with-lease/*.yaml "$from"/pod/fast/*.yaml \
        "$from"/volume/fast/*.yaml; do
        case ${file##*/} in
        kustomization.yaml) ;;
        *) cp "$file" "$folder/.stages.$$/" ;;
        esac
    done
    mv "$folder/.stages.$$" "$folder/stages"
}

# Definitions of the custom resources that the chart uses, as their makers publish them.
definitions() {
    rm -rf "$folder/definitions"
    mkdir -p "$folder/.definitions.$$"
    prometheus=$(module definitions github.com/prometheus-operator/prometheus-operator)
    certificates=$(module definitions github.com/cert-manager/cert-manager)
    gateways=$(module definitions sigs.k8s.io/gateway-api)
    cp "$prometheus"/example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml \
        "$prometheus"/example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml \
        "$certificates"/deploy/crds/cert-manager.io_*.yaml \
        "$gateways"/config/crd/standard/gateway.networking.k8s.io_httproutes.yaml "$folder/.definitions.$$/"
    mv "$folder/.definitions.$$" "$folder/definitions"
}

# Names of services come from a module of their own, which wants other versions.
build_names() {
    names=$(cat "$here/names/go.mod" "$here/names/go.sum" "$here/names/main.go" | sha256sum | cut -c 1-16)
    [ -x "$folder/coredns-$names" ] || sh "$go" build -C "$here/names" -ldflags='-s -w' -o "$folder/coredns-$names" . >&2
    ln -sf "coredns-$names" "$folder/coredns"
}

build helm helm.sh/helm/v4/cmd/helm
if [ "${1:-helm}" != helm ]; then
    stages
    definitions
    build kubectl k8s.io/kubernetes/cmd/kubectl
    build kwok sigs.k8s.io/kwok/cmd/kwok
    build etcd go.etcd.io/etcd/server/v3
    build kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver
    build kube-scheduler k8s.io/kubernetes/cmd/kube-scheduler
    build kube-controller-manager k8s.io/kubernetes/cmd/kube-controller-manager
fi
if [ "${1:-helm}" = node ]; then
    build kubelet k8s.io/kubernetes/cmd/kubelet
    build kube-proxy k8s.io/kubernetes/cmd/kube-proxy
    build_names
fi
echo "$folder"
