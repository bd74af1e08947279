# Included by cmake's first project() call. What computes (ggml, llama, mtmd) is compiled as upstream does it, by -O3. The rest
# reads arguments, JSON and HTTP; it is most of the code, always waits for what computes, and -O1 takes a third off its time.
function(compile_faster)
  foreach(target IN ITEMS cpp-httplib llama-bench-impl llama-common llama-server-impl server-context)
    target_compile_options(${target} PRIVATE -O1)
  endforeach()
endfunction()

cmake_language(DEFER CALL compile_faster)
