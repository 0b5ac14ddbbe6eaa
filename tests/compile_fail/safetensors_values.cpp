// expect: lockstep::SafetensorsFile: values() reads numbers; take the bytes of others
#include "lockstep/files/safetensors.hpp"

auto flags(const lockstep::SafetensorsFile& file) { return file.values<bool>("flags"); }
