/// \file
/// The answer to --version.
#pragma once

#include <string>

namespace support {

/// "lockstep X.Y.Z", and a line with the versions of the libraries that this program is built with.
std::string versions(bool has_workers);

}  // namespace support
