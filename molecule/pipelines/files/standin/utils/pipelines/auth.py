"""Who may ask: upstream's server looks at the key only in some of its routes."""

from __future__ import annotations

from config import API_KEY
from fastapi import Depends, HTTPException
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

bearer_security = HTTPBearer()


def get_current_user(credentials: HTTPAuthorizationCredentials = Depends(bearer_security)) -> str:  # noqa: B008  # FastAPI's way
    """The key, where it is the right one."""
    if credentials.credentials != API_KEY:
        raise HTTPException(status_code=401, detail="Invalid API key")
    return credentials.credentials
