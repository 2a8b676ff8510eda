# vflbench with the CPU build of torch, as a user without root:
#   docker build -t vflbench . && docker run --rm -v "$PWD:/work" --user "$(id -u):$(id -g)" vflbench train
FROM python:3.12-slim
COPY . /src
RUN pip install --no-cache-dir uv \
    && cd /src && uv pip install --system --no-cache --torch-backend=cpu -c constraints.txt . \
    && rm -rf /src \
    && useradd --create-home --uid 1000 vflbench \
    && install -d -o vflbench /work
USER vflbench
ENV HOME=/home/vflbench XDG_CACHE_HOME=/tmp/cache
WORKDIR /work
ENTRYPOINT ["vflbench"]
CMD ["--help"]
