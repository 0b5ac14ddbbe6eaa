#include "lockstep/impl/src_onnx.hpp"
