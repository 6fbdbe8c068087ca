#!/bin/sh
# Run as root while the container's image is built. mudroom makes its own namespaces; the feature's securityOpt lets it.
set -eu
python3 -m venv /opt/mudroom
/opt/mudroom/bin/pip install --quiet "${REQUIREMENT:-mudroom}"
ln -sf /opt/mudroom/bin/mudroom /usr/local/bin/mudroom
/opt/mudroom/bin/mudroom doctor --json >/opt/mudroom/doctor.json || true
