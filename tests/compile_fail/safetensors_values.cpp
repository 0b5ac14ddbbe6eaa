// expect: lockstep::SafetensorsFile: values() reads numbers; use bytes() for other types
#include "lockstep/files/safetensors.hpp"

auto flags(const lockstep::SafetensorsFile& file) { return file.values<bool>("flags"); }
