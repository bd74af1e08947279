# Included by cmake's first project() call. ggml is compiled as upstream does it, by -O3. Most of the rest reads arguments, models,
# JSON and HTTP, or puts graphs together; it always waits for what computes. -O1 takes a third off its time, and -Og more; -O1 is for
# what works on each token that is sent. Sources that are compiled together share what the compiler makes of their headers.

# As upstream does it but for its level. A version of llama.cpp whose files are not known may lack the target.
function(compile_quickly target level)
  if(TARGET ${target})
    target_compile_options(${target} PRIVATE ${level})
  endif()
endfunction()

# TOGETHER: how many sources are compiled as one. APART: those that are large alone, or cannot stand beside others.
# COMPUTES: those that work on each token or pixel; they keep -O3.
function(compile_together target level)
  cmake_parse_arguments(PARSE_ARGV 2 given "" "TOGETHER" "APART;COMPUTES")
  compile_quickly(${target} ${level})
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${given_TOGETHER})
  get_target_property(folder ${target} SOURCE_DIR)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${folder})
    set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION OFF)
  endforeach()
  foreach(source IN LISTS given_APART given_COMPUTES)
    if(NOT EXISTS ${folder}/${source})
      message(FATAL_ERROR "${target} has no ${source}: what computes is to be found anew for this version of llama.cpp")
    endif()
    set_source_files_properties(${folder}/${source} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endforeach()
  foreach(source IN LISTS given_COMPUTES)
    set_source_files_properties(${folder}/${source} TARGET_DIRECTORY ${target} PROPERTIES COMPILE_OPTIONS -O3)
  endforeach()
endfunction()

set(provision_files ${CMAKE_CURRENT_LIST_DIR})

# What says how much of a card llama-server would take. It stands for the card itself, so that it has the back end of the processor alone
# and starts where no driver is, whatever else is built.
function(add_memory_program)
  set(registry ${PROJECT_SOURCE_DIR}/ggml/src/ggml-backend-reg.cpp)
  if(NOT TARGET llama-common OR NOT TARGET mtmd OR NOT EXISTS ${registry})
    return()
  endif()
  add_executable(llama-memory EXCLUDE_FROM_ALL ${provision_files}/llama_memory.cpp ${registry})
  target_include_directories(llama-memory PRIVATE ${PROJECT_SOURCE_DIR}/ggml/src ${PROJECT_SOURCE_DIR}/src)
  target_compile_definitions(llama-memory PRIVATE GGML_USE_CPU)
  target_compile_features(llama-memory PRIVATE cxx_std_17)
  target_compile_options(llama-memory PRIVATE -O1 -UGGML_USE_CUDA -UGGML_USE_VULKAN)
  target_link_options(llama-memory PRIVATE -Wl,--as-needed -static-libstdc++ -static-libgcc)
  target_link_libraries(llama-memory PRIVATE mtmd llama-common llama ${CMAKE_DL_LIBS})
  # The number is another one where it answers otherwise: copies that were kept elsewhere are told apart by it.
  set_target_properties(llama-memory PROPERTIES OUTPUT_NAME llama-memory-1 RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endfunction()

function(compile_faster)
  add_memory_program()
  compile_quickly(cpp-httplib -O1)
  compile_quickly(llama-bench-impl -Og)
  if(NOT PROVISION_KNOWN_SOURCE)
    compile_quickly(llama-common -O1)
    compile_quickly(llama-server-impl -O1)
    compile_quickly(server-context -O1)
    return()
  endif()
  compile_together(llama-common -O1 TOGETHER 9 APART json.cpp)
  compile_together(llama-server-impl -O1 TOGETHER 3)
  compile_together(server-context -O1 TOGETHER 5)
  compile_together(mtmd -Og TOGETHER 16
    APART clip.cpp mtmd-helper.cpp mtmd-helper-gen.cpp
    COMPUTES mtmd-audio.cpp mtmd-image.cpp)
  compile_together(llama -Og TOGETHER 16
    COMPUTES llama-batch.cpp llama-grammar.cpp llama-graph.cpp llama-kv-cache.cpp llama-kv-cache-dsa.cpp llama-kv-cache-dsv4.cpp
      llama-kv-cache-msa.cpp llama-memory-recurrent.cpp llama-sampler.cpp llama-vocab.cpp unicode.cpp)
endfunction()

cmake_language(DEFER CALL compile_faster)
