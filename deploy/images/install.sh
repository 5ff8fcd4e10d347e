#!/bin/sh
# Inside python.Dockerfile: installs what one member of the workspace needs into /opt/bos.
#
#   sh install.sh others services/gateway      # packages of others
#   sh install.sh ours services/gateway        # the member, and our libraries that it depends on
#
# Packages of others are the locked ones, held against their hashes; ours are the wheels in /src/wheels.
# Tests of packages are left out, and everything is compiled, since the image cannot be written to.
set -eu
whose=$1
member=$2
if [ -s /run/secrets/ca ]; then export SSL_CERT_FILE=/run/secrets/ca; fi
export UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never
uv=/tools/src/.venv/bin/uv
touch /tmp/start
[ -d /opt/bos ] || "$uv" venv --quiet --python "$(command -v python3)" /opt/bos

cd /src
python3 closure.py --lock requirements.lock "--$whose" "$member" > /tmp/wanted.txt
case $whose in
others)
    [ ! -s /tmp/wanted.txt ] || "$uv" pip install --quiet --python /opt/bos/bin/python \
        --constraint requirements.lock --verify-hashes -r /tmp/wanted.txt
    ;;
ours)
    # shellcheck disable=SC2046  # one wheel a line
    "$uv" pip install --quiet --python /opt/bos/bin/python --no-deps --no-index \
        $(sed 's/-/_/g; s|.*|/src/wheels/&-*.whl|' /tmp/wanted.txt)
    "$uv" pip check --quiet --python /opt/bos/bin/python
    ;;
esac

site=$(/opt/bos/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# numpy.testing imports a module of numpy's own tests.
find "$site" -type d \( -name tests -o -name test \) ! -path '*/numpy/_core/tests' -prune -exec rm -rf {} +
find "$site" -type f \( -name '*.pyx' -o -name '*.pxd' -o -name '*.c' -o -name '*.h' \) -delete
rm -f /opt/bos/bin/activate* /opt/bos/bin/*.bat
# Symbols for debuggers are a third of some packages. Not in *.libs: what patchelf has moved about does not
# bear it. What the layer below holds stays as it is, here and below, or it would be in both.
strip() { LD_LIBRARY_PATH=$(echo /tools/usr/lib/*-linux-gnu) /tools/usr/bin/strip --strip-unneeded "$@"; }
find "$site" -name '*.so' -size +512k ! -path '*.libs/*' -cnewer /tmp/start > /tmp/symbols.txt
find /opt/bos/bin -type f -size +512k -cnewer /tmp/start >> /tmp/symbols.txt
while IFS= read -r file; do strip "$file"; done < /tmp/symbols.txt

# By the source's hash instead of its time, and not looked at again: the files cannot change.
/opt/bos/bin/python - "$site" > /tmp/uncompiled.txt <<'END'
import sys
from importlib.util import cache_from_source
from pathlib import Path

for source in sorted(Path(sys.argv[1]).rglob("*.py")):
    if not Path(cache_from_source(source)).exists():
        print(source)
END
/opt/bos/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash -i /tmp/uncompiled.txt

if [ "$whose" = ours ]; then
    printf '#!/opt/bos/bin/python\nimport runpy\n\nrunpy.run_module("bos_%s", run_name="__main__", alter_sys=True)\n' \
        "${member##*/}" > /opt/bos/bin/serve
    chmod 0755 /opt/bos/bin/serve
fi
