/// \file
/// The requirement shared by declarations and pipelines.
#pragma once

#include <type_traits>

namespace lockstep {

/// An object type that can be copied and assigned. Stands in for std::copyable, which takes ten
/// times as long to compile.
template <class T>
concept Copyable =
    std::is_object_v<T> && std::is_copy_constructible_v<T> && std::is_copy_assignable_v<T>;

}  // namespace lockstep
