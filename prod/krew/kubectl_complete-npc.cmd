@echo off
rem kubectl runs this, where it is in %PATH%, to complete "kubectl npc".
kubectl npc __complete %*
