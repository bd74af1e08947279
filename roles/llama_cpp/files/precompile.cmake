# Included by cmake's first project() call: the same code in less time, since most of it was parsing the same headers again.
function(precompile)
  foreach(target IN ITEMS llama llama-common server-context llama-server-impl mtmd)
    target_precompile_headers(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:<algorithm$<ANGLE-R>> $<$<COMPILE_LANGUAGE:CXX>:<functional$<ANGLE-R>> $<$<COMPILE_LANGUAGE:CXX>:<map$<ANGLE-R>>
      $<$<COMPILE_LANGUAGE:CXX>:<memory$<ANGLE-R>> $<$<COMPILE_LANGUAGE:CXX>:<regex$<ANGLE-R>> $<$<COMPILE_LANGUAGE:CXX>:<sstream$<ANGLE-R>>
      $<$<COMPILE_LANGUAGE:CXX>:<string$<ANGLE-R>> $<$<COMPILE_LANGUAGE:CXX>:<unordered_map$<ANGLE-R>> $<$<COMPILE_LANGUAGE:CXX>:<vector$<ANGLE-R>>)
  endforeach()
  foreach(target IN ITEMS llama-common server-context llama-server-impl)
    target_precompile_headers(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${CMAKE_SOURCE_DIR}/vendor/nlohmann/json.hpp>)
  endforeach()
endfunction()
cmake_language(DEFER CALL precompile)
