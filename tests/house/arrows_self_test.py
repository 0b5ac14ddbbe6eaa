#!/usr/bin/env python3
"""Tests arrows.py: allowed includes pass, and each kind of forbidden include is found."""
import sys

from arrows import MOST, complaints, crowds, cycles, namesakes

ALLOWED = {
    "core/tensor_view.hpp": '#include <span>\n#include "lockstep/core/shape.hpp"\n',
    "layers/dense.hpp": '#include "lockstep/concepts/layer.hpp"\n#include "lockstep/layers/op.hpp"',
    "devices/cpu/dense.hpp": '#include <oneapi/dnnl/dnnl.hpp>\n#include "lockstep/layers/dense.hpp"',
    "devices/cpu/pointwise.hpp": '#include "lockstep/devices/host/pointwise.hpp"',
    "devices/cpu/device.hpp": '#include "lockstep/devices/cpu/onednn.hpp"',
    "cluster/rendezvous.hpp": "#include <asio.hpp>\n",
    "core/fmt_core.hpp": "#include <fmt/core.h>",
    "fmt.hpp": '#include "lockstep/core/compiler.hpp"\n#include <fmt/format.h>',
    "lockstep.hpp": '#include "lockstep/core/compiler.hpp"\n\n#include "lockstep/training/model.hpp"',
    "core/compiler.hpp": '#include "lockstep needs C++20"',
    "cluster/elastic/votes.hpp": '#include "lockstep/cluster/network/frames.hpp"\n#include "lockstep/core/log.hpp"',
    "collectives/tcp/mesh.ipp": '#include "lockstep/collectives/tcp/link.hpp"\n#include "lockstep/collectives/algorithms/call.hpp"',
    "collectives/machine_group.hpp": '#include "lockstep/collectives/tcp/mesh.hpp"',
    "strategies/planes/tcp_plane.ipp": '#include "lockstep/cluster/rendezvous/rendezvous.hpp"',
}
WRONG = {
    "core/shape.hpp": '#include "lockstep/concepts/layer.hpp"',             # upwards
    "layers/dense.hpp": '#include "lockstep/losses/penalty.hpp"',           # same level
    "model/plan.hpp": '  #  include "lockstep/collectives/thread_group.hpp"',  # same level
    "data/sources/idx.hpp": "#include <asio/ip/tcp.hpp>",                           # a library's room
    "training/model.hpp": "#include <oneapi/dnnl/dnnl.hpp>",
    "layers/conv2d.hpp": "#include <omp.h>",
    "strategies/mirrored.hpp": "#include <cuda_runtime.h>",
    "training/history.hpp": '#include "lockstep/lockstep.hpp"',             # an umbrella header
    "data/sources/digits.hpp": '#include "idx.hpp"',                                # not relative to the root
    "devices/cpu/dense.hpp": '#include "lockstep/devices/reference/dense.hpp"',
    "devices/host/loss.hpp": '#include "lockstep/devices/cpu/device.hpp"',
    "core/error.hpp": "#include <fmt/core.h>",                              # only core/fmt_core.hpp may
    "core/log.ipp": "#include <fmt/format.h>",
    "training/report/summary.ipp": '#include "lockstep/fmt.hpp"',
    "cluster/network/frames.hpp": '#include "lockstep/cluster/rendezvous/messages.hpp"',  # a later room
    "collectives/tcp/link.ipp": '#include "lockstep/collectives/shared_memory/barrier.hpp"',  # a room on the same level
    "util/strings.hpp": "",                                                 # no such folder
    "everything.hpp": "",
    "cpu.hpp": '#include "lockstep/core/config.hpp"\n#include "lockstep/core/compiler.hpp"',
    "core/config.hpp": '#include "lockstep needs C++20"',
}

failures = [f"{header}: refused: {complaints(header, text)}"
            for header, text in ALLOWED.items() if complaints(header, text)]
failures += [f"{header}: one complaint expected for {text!r}, not {complaints(header, text)}"
             for header, text in WRONG.items() if len(complaints(header, text)) != 1]

X, X_IPP, Y = '#include "lockstep/core/x.hpp"\n', '#include "lockstep/core/x.ipp"\n', '#include "lockstep/core/y.hpp"\n'
Y_IPP = '#include "lockstep/core/y.ipp"\n'
GOOD = ({"core/x.hpp": X_IPP, "core/x.ipp": X + Y, "core/y.hpp": ""},
        {"core/x.hpp": X_IPP, "core/x.ipp": X + Y, "core/y.hpp": Y_IPP, "core/y.ipp": Y + X})
BAD = ({"core/x.hpp": Y, "core/y.hpp": X}, {"core/x.hpp": X_IPP, "core/x.ipp": X + Y, "core/y.hpp": X})
failures += [f"a cycle is found in {files}" for files in GOOD if cycles(files)]
failures += [f"no cycle is found in {files}" for files in BAD if not cycles(files)]
if len(namesakes(["model/graph.hpp", "devices/cuda/graph.hpp"])) != 1:
    failures.append("two headers of one name are allowed")
if crowds([f"core/a{i}.hpp" for i in range(MOST)]) or len(crowds([f"core/a{i}.hpp" for i in range(MOST + 1)])) != 1:
    failures.append("the limit of subjects in a folder is not MOST")
failures += [f"refused: {names}" for names in (["layers/add.hpp", "devices/cpu/add.hpp"], ["core/x.hpp", "core/x.ipp"])
             if namesakes(names)]
sys.exit("\n".join(failures) or None)
