# lockstep_add_compiled(COMPONENT FOLDER): adds the compiled form of a component, from the sources in FOLDER, as a static
# library: lockstep::compiled for core, lockstep::compiled_cpu and so on for the others. It is built only if a target links
# it. Used by the build and by the installed package.
function(lockstep_compiled_name component result)
  if(component STREQUAL core)
    set(${result} compiled PARENT_SCOPE)
  else()
    set(${result} compiled_${component} PARENT_SCOPE)
  endif()
endfunction()

function(lockstep_add_compiled component folder)
  lockstep_compiled_name(${component} name)
  if(TARGET lockstep_${name})
    return()
  endif()
  list(TRANSFORM lockstep_${component}_sources REPLACE "(.+)" "${folder}/\\1.cpp" OUTPUT_VARIABLE sources)
  add_library(lockstep_${name} STATIC EXCLUDE_FROM_ALL ${sources})
  add_library(lockstep::${name} ALIAS lockstep_${name})
  # Hidden, so that a library built with lockstep does not export its symbols. Objects that must be unique in a process have
  # explicit default visibility.
  set_target_properties(lockstep_${name} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON
                        CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_compile_definitions(lockstep_${name} PUBLIC LOCKSTEP_SEPARATE_COMPILATION)
  target_compile_options(lockstep_${name} PRIVATE ${lockstep_${component}_options})
  # Options of the project that builds it, for all components and for this one.
  target_compile_options(lockstep_${name} PRIVATE ${LOCKSTEP_COMPILED_OPTIONS} ${LOCKSTEP_COMPILED_OPTIONS_${component}})
  target_link_libraries(lockstep_${name} PUBLIC lockstep::${component})
  if(DEFINED lockstep_${component}_base)
    target_link_libraries(lockstep_${name} PUBLIC lockstep::compiled_${lockstep_${component}_base})
  elseif(NOT component STREQUAL core)
    target_link_libraries(lockstep_${name} PUBLIC lockstep::compiled)
  endif()
endfunction()
